//! Memory that is used again: a fresh page of memory costs the kernel more than filling it.

use std::sync::Mutex;

/// What a pool keeps: its memory can be used for another page.
pub trait Reusable: Default {
    /// Of the memory, whether it is in use or not.
    fn bytes(&self) -> usize;
}

/// Memory of earlier pages, at most so many bytes of it.
///
/// It never blocks: where another thread has the pool, memory is new, or goes back to the allocator.
/// So a process that was forked while a thread had it is not stuck, either.
pub struct Pool<T> {
    kept: Mutex<Vec<T>>,
    max_bytes: usize,
}

impl<T: Reusable> Pool<T> {
    pub const fn new(max_bytes: usize) -> Self {
        Self { kept: Mutex::new(Vec::new()), max_bytes }
    }

    pub fn take(&self) -> T {
        self.kept.try_lock().ok().and_then(|mut kept| kept.pop()).unwrap_or_default()
    }

    pub fn give_back(&self, one: T) {
        if let Ok(mut kept) = self.kept.try_lock() {
            let held: usize = kept.iter().map(T::bytes).sum();
            if held.saturating_add(one.bytes()) <= self.max_bytes {
                kept.push(one);
            }
        }
    }
}
