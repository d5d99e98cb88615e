"""The script of live pages. It is the only one, and its server sends it as a file of its own."""

from __future__ import annotations

REFRESH_S = 2

LIVE_SCRIPT = f"""\
"use strict";
// Fetches the page again and exchanges its elements of the class "live". All else stays: where the
// reader has scrolled to, what has the focus, what was typed.
const EVERY_MS = {REFRESH_S * 1000}, PATIENCE_MS = 15000;
let shown = "";

// How an element is found again in the newer part: by its address, or by its label.
function selector(one) {{
  const name = ["href", "aria-label"].find((each) => one.hasAttribute(each));
  return name && `[${{name}}="${{CSS.escape(one.getAttribute(name))}}"]`;
}}

function exchange(old, fresh) {{
  const moved = [...old.querySelectorAll(".scroll")].map((one) => [selector(one), one.scrollLeft]);
  const focused = old.contains(document.activeElement) && selector(document.activeElement);
  old.replaceWith(document.adoptNode(fresh));
  for (const [where, left] of moved) {{
    const one = left && where && fresh.querySelector(where);
    if (one) one.scrollLeft = left;
  }}
  if (focused) fresh.querySelector(focused)?.focus({{ preventScroll: true }});
}}

async function refresh() {{
  // A hidden page asks for nothing; text that is being selected stays.
  if (!document.hidden && getSelection().isCollapsed) {{
    const away = document.getElementById("away");
    try {{
      const signal = AbortSignal.timeout(PATIENCE_MS);
      const answer = await fetch(location.href, {{ cache: "no-store", signal }});
      if (!answer.ok) throw new Error(`status ${{answer.status}}`);
      const text = await answer.text();
      if (text !== shown) {{
        // Scripts of a parsed document do not run.
        const page = new DOMParser().parseFromString(text, "text/html");
        for (const old of document.querySelectorAll(".live")) {{
          const fresh = page.getElementById(old.id);
          if (fresh) exchange(old, fresh);
        }}
        document.title = page.title;
        shown = text;
      }}
      away.hidden = true;
    }} catch {{
      away.hidden = false;
    }}
  }}
  setTimeout(refresh, EVERY_MS);
}}
setTimeout(refresh, EVERY_MS);
"""
