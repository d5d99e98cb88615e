import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;

/** As much of CBOR as a Kinesis client sends and reads. A timestamp is tag 1 with milliseconds. */
final class Cbor {
    private static final int NUMBER = 0, NEGATIVE = 1, BYTES = 2, TEXT = 3, ARRAY = 4, MAP = 5, TAG = 6;
    private static final int INDEFINITE = 31, BREAK = 0xff, FALSE = 0xf4, TRUE = 0xf5, DOUBLE = 0xfb;
    private static final JsonNodeFactory NODES = JsonNodeFactory.instance;

    private final ByteArrayOutputStream out = new ByteArrayOutputStream();

    Cbor map(int size) {
        return head(MAP, size);
    }

    Cbor array(int size) {
        return head(ARRAY, size);
    }

    Cbor number(long n) {
        return head(NUMBER, n);
    }

    Cbor timestamp(long ms) {
        return head(TAG, 1).number(ms);
    }

    Cbor text(String text) {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        head(TEXT, bytes.length).out.writeBytes(bytes);
        return this;
    }

    Cbor bytes(byte[] bytes) {
        head(BYTES, bytes.length).out.writeBytes(bytes);
        return this;
    }

    byte[] toByteArray() {
        return out.toByteArray();
    }

    private Cbor head(int major, long n) {
        int width = n < 24 ? 0 : n < 1 << 8 ? 1 : n < 1 << 16 ? 2 : n < 1L << 32 ? 4 : 8;
        int low = switch (width) {
            case 0 -> (int) n;
            case 1 -> 24;
            case 2 -> 25;
            case 4 -> 26;
            default -> 27;
        };
        out.write(major << 5 | low);
        for (int shift = 8 * (width - 1); shift >= 0; shift -= 8) {
            out.write((int) (n >> shift));
        }
        return this;
    }

    /** An answer. A number with a fraction is a time in seconds. */
    static ByteBuf encode(JsonNode node) {
        Cbor cbor = new Cbor();
        cbor.write(node);
        return Unpooled.wrappedBuffer(cbor.toByteArray());
    }

    private void write(JsonNode node) {
        if (node instanceof ObjectNode object) {
            map(object.size());
            object.properties().forEach(field -> text(field.getKey()).write(field.getValue()));
        } else if (node instanceof ArrayNode array) {
            array(array.size());
            array.forEach(this::write);
        } else if (node.isFloatingPointNumber()) {
            timestamp(Math.round(node.asDouble() * 1000));
        } else if (node.isNumber()) {
            number(node.asLong());
        } else if (node.isBoolean()) {
            out.write(node.asBoolean() ? TRUE : FALSE);
        } else {
            text(node.asText());
        }
    }

    /** A question. */
    static JsonNode decode(ByteBuf in) {
        return in.isReadable() ? read(in) : NODES.objectNode();
    }

    private static JsonNode read(ByteBuf in) {
        int first = in.readUnsignedByte(), major = first >> 5, low = first & 31;
        if (first == DOUBLE) {
            return NODES.numberNode(in.readDouble());
        }
        if (major > TAG) {
            return first == TRUE || first == FALSE ? NODES.booleanNode(first == TRUE) : NODES.nullNode();
        }
        long n = switch (low) {
            case 24 -> in.readUnsignedByte();
            case 25 -> in.readUnsignedShort();
            case 26 -> in.readUnsignedInt();
            case 27 -> in.readLong();
            case INDEFINITE -> Long.MAX_VALUE;
            default -> low;
        };
        return switch (major) {
            case NUMBER -> NODES.numberNode(n);
            case NEGATIVE -> NODES.numberNode(-1 - n);
            case BYTES, TEXT -> NODES.textNode(text(in, n));
            case ARRAY -> {
                ArrayNode array = NODES.arrayNode();
                while (more(in, n, array.size())) {
                    array.add(read(in));
                }
                yield array;
            }
            case MAP -> {
                ObjectNode map = NODES.objectNode();
                while (more(in, n, map.size())) {
                    String key = read(in).asText();
                    map.set(key, read(in));
                }
                yield map;
            }
            default -> read(in);  // a tag: its value
        };
    }

    private static String text(ByteBuf in, long n) {
        StringBuilder text = new StringBuilder();
        if (n != Long.MAX_VALUE) {
            return in.readCharSequence((int) n, StandardCharsets.UTF_8).toString();
        }
        while (more(in, n, 0)) {
            text.append(read(in).asText());
        }
        return text.toString();
    }

    private static boolean more(ByteBuf in, long n, int had) {
        if (n != Long.MAX_VALUE) {
            return had < n;
        }
        boolean ended = in.getUnsignedByte(in.readerIndex()) == BREAK;
        if (ended) {
            in.skipBytes(1);
        }
        return !ended;
    }
}
