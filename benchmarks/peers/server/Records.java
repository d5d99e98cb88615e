import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Random;

/**
 * The records of a shard, each encoded in JSON and in CBOR. All take the same number of bytes, so that
 * a page is one slice of an array.
 */
final class Records {
    static final int PAGE = 10_000, PAGE_BYTES = 10 << 20, KEY_BYTES = 11;
    private static final String NUMBER_HEAD = "495903382714902566085596925383615710";
    private static final long FIRST_NUMBER = 59_219_759_891_365_888L, NUMBER_STEP = 7;

    private final int count, size;
    private final long firstMs;
    private final double intervalMs;
    private final byte[] json, cbor;
    private final int jsonWidth, cborWidth;

    /** `count` records of `size` bytes, the first one at `firstMs`, then one each `intervalMs`. */
    Records(int count, int size, long firstMs, double intervalMs) {
        this.count = count;
        this.size = size;
        this.firstMs = firstMs;
        this.intervalMs = intervalMs;
        Random random = new Random(14);  // the same records in every run
        byte[][] payloads = new byte[Math.min(count, PAGE)][size];
        for (byte[] payload : payloads) {
            random.nextBytes(payload);
        }
        jsonWidth = inJson(0, payloads).length;
        cborWidth = inCbor(0, payloads).length;
        json = new byte[Math.multiplyExact(count, jsonWidth)];
        cbor = new byte[Math.multiplyExact(count, cborWidth)];
        for (int n = 0; n < count; n++) {
            System.arraycopy(inJson(n, payloads), 0, json, n * jsonWidth, jsonWidth);
            System.arraycopy(inCbor(n, payloads), 0, cbor, n * cborWidth, cborWidth);
        }
    }

    /** 56 digits, as the service's. */
    static String sequenceNumber(int n) {
        return NUMBER_HEAD + padded(FIRST_NUMBER + n * NUMBER_STEP, 20);
    }

    private static String key(int n) {
        return "carrier-" + padded(n % 1000, 3);
    }

    private static String padded(long n, int digits) {
        String text = Long.toString(n);
        return "0".repeat(digits - text.length()) + text;
    }

    private long arrivalMs(int n) {
        return firstMs + (long) (n * intervalMs);
    }

    private byte[] inJson(int n, byte[][] payloads) {
        long ms = arrivalMs(n);
        return ("{\"SequenceNumber\":\"" + sequenceNumber(n) + "\",\"ApproximateArrivalTimestamp\":"
                + ms / 1000 + "." + padded(ms % 1000, 3) + ",\"Data\":\""
                + Base64.getEncoder().encodeToString(payloads[n % payloads.length])
                + "\",\"PartitionKey\":\"" + key(n) + "\"},").getBytes(StandardCharsets.US_ASCII);
    }

    private byte[] inCbor(int n, byte[][] payloads) {
        return new Cbor().map(4)
                .text("SequenceNumber").text(sequenceNumber(n))
                .text("ApproximateArrivalTimestamp").timestamp(arrivalMs(n))
                .text("Data").bytes(payloads[n % payloads.length])
                .text("PartitionKey").text(key(n))
                .toByteArray();
    }

    /** What the service counts of a record: its data and its partition key. */
    int accounted() {
        return size + KEY_BYTES;
    }

    /** The number of records that have arrived by now. */
    int visible(long nowMs) {
        return nowMs < firstMs ? 0 : (int) Math.min(count, (nowMs - firstMs) / intervalMs + 1);
    }

    int endOfPage(int first, int limit, long nowMs) {
        int most = Math.min(Math.min(limit, PAGE), PAGE_BYTES / accounted());
        return Math.max(first, Math.min(visible(nowMs), first + most));
    }

    int indexOf(String sequenceNumber) {
        String digits = sequenceNumber.substring(NUMBER_HEAD.length());
        return (int) ((Long.parseLong(digits) - FIRST_NUMBER) / NUMBER_STEP);
    }

    /** The first record that arrived at this time or later; in seconds, or in milliseconds. */
    int indexAt(double time) {
        double ms = time < 1e11 ? time * 1000 : time;
        return (int) Math.min(count, Math.max(0, Math.ceil((ms - firstMs) / intervalMs)));
    }

    ByteBuf page(int first, int end, String next, boolean inCbor) {
        long behindMs = (long) ((visible(System.currentTimeMillis()) - end) * intervalMs);
        if (inCbor) {
            byte[] head = new Cbor().map(3).text("Records").array(end - first).toByteArray();
            byte[] tail = new Cbor().text("NextShardIterator").text(next)
                    .text("MillisBehindLatest").number(Math.max(0, behindMs)).toByteArray();
            return Unpooled.wrappedBuffer(Unpooled.wrappedBuffer(head),
                    Unpooled.wrappedBuffer(cbor, first * cborWidth, (end - first) * cborWidth),
                    Unpooled.wrappedBuffer(tail));
        }
        int bytes = Math.max(0, (end - first) * jsonWidth - 1);  // without the last comma
        String tail = "],\"NextShardIterator\":\"" + next + "\",\"MillisBehindLatest\":"
                + Math.max(0, behindMs) + "}";
        return Unpooled.wrappedBuffer(
                Unpooled.wrappedBuffer("{\"Records\":[".getBytes(StandardCharsets.US_ASCII)),
                Unpooled.wrappedBuffer(json, first * jsonWidth, bytes),
                Unpooled.wrappedBuffer(tail.getBytes(StandardCharsets.US_ASCII)));
    }
}
