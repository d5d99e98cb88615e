import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.channel.nio.NioIoHandler;
import io.netty.channel.socket.SocketChannel;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.handler.codec.http.DefaultFullHttpResponse;
import io.netty.handler.codec.http.FullHttpRequest;
import io.netty.handler.codec.http.HttpHeaderNames;
import io.netty.handler.codec.http.HttpObjectAggregator;
import io.netty.handler.codec.http.HttpResponseStatus;
import io.netty.handler.codec.http.HttpServerCodec;
import io.netty.handler.codec.http.HttpServerUpgradeHandler;
import io.netty.handler.codec.http.HttpVersion;
import io.netty.handler.codec.http2.CleartextHttp2ServerUpgradeHandler;
import io.netty.handler.codec.http2.DefaultHttp2Connection;
import io.netty.handler.codec.http2.Http2Settings;
import io.netty.handler.codec.http2.HttpConversionUtil;
import io.netty.handler.codec.http2.HttpToHttp2ConnectionHandlerBuilder;
import io.netty.handler.codec.http2.InboundHttp2ToHttpAdapterBuilder;
import java.math.BigInteger;
import java.net.InetSocketAddress;
import java.time.ZoneOffset;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.LongAdder;

/**
 * A Kinesis that answers reads from records encoded beforehand, in JSON and in CBOR, over HTTP/1.1
 * and HTTP/2 without TLS (as the KCL speaks it), so that the reader is what is measured. It needs the
 * jars that PySpark ships, and nothing else.
 *
 * <pre>java -cp 'classes:jars/*' ReplayServer [--limits] NAME:SHARDS:RECORDS:BYTES[:PER_SECOND] ...</pre>
 *
 * All shards of a stream have the same records: a stream takes the memory of one shard. A stream with
 * PER_SECOND is live: each shard gets so many records a second from the start of the server on. The
 * others are there from the start. Prints its port when it is ready; ends when its stdin closes.
 * GET / answers {"calls": {operation: number}, "bytes": sent, "debt_s": seconds}. --limits: 5 reads
 * and 2 MiB a second and shard, as the service has them; nothing unused is saved up beyond a second's
 * reads. A page may be more than what is left: then the shard is blocked, for `debt_s` at most.
 */
public final class ReplayServer extends SimpleChannelInboundHandler<FullHttpRequest> {
    static final long READS_PER_SECOND = 5, BYTES_PER_SECOND = 2 << 20;
    static final ObjectMapper JSON = new ObjectMapper();

    /** A shard's own limits. Its records are the stream's. */
    static final class Limits {
        private double reads = READS_PER_SECOND;
        private long refilledNs = System.nanoTime(), blockedUntilNs = System.nanoTime();

        synchronized boolean refuses(long bytes) {
            long now = System.nanoTime();
            reads = Math.min(READS_PER_SECOND, reads + READS_PER_SECOND * (now - refilledNs) / 1e9);
            refilledNs = now;
            if (reads < 1 || now < blockedUntilNs) {
                return true;
            }
            reads--;
            blockedUntilNs = now + bytes * 1_000_000_000L / BYTES_PER_SECOND;
            return false;
        }

        /** How long the shard is still blocked for what it has been read. */
        synchronized double debtS() {
            return Math.max(0, blockedUntilNs - System.nanoTime()) / 1e9;
        }
    }

    static final class Stream {
        final String name;
        final Limits[] shards;
        final Records records;
        final long createdMs;

        Stream(String spec, long nowMs) {
            String[] parts = spec.split(":");
            name = parts[0];
            shards = new Limits[Integer.parseInt(parts[1])];
            for (int n = 0; n < shards.length; n++) {
                shards[n] = new Limits();
            }
            int each = Integer.parseInt(parts[2]) / shards.length;
            boolean live = parts.length > 4;
            double intervalMs = live ? 1000 / Double.parseDouble(parts[4]) : 1;
            long firstMs = live ? nowMs : nowMs - each - 60_000;
            records = new Records(each, Integer.parseInt(parts[3]), firstMs, intervalMs);
            createdMs = firstMs - 3_600_000;
        }

        String arn() {
            return "arn:aws:kinesis:us-east-1:000000000000:stream/" + name;
        }
    }

    private final Map<String, Stream> streams;
    private final boolean limited;
    private final Map<String, LongAdder> calls;
    private final LongAdder sent;

    private ReplayServer(
            Map<String, Stream> streams, boolean limited, Map<String, LongAdder> calls, LongAdder sent) {
        this.streams = streams;
        this.limited = limited;
        this.calls = calls;
        this.sent = sent;
    }

    @Override
    protected void channelRead0(ChannelHandlerContext context, FullHttpRequest request)
            throws Exception {
        String kind = request.headers().get(HttpHeaderNames.CONTENT_TYPE, "application/json");
        boolean cbor = kind.contains("cbor");
        String target = request.headers().get("X-Amz-Target", "");
        String operation = target.substring(target.indexOf('.') + 1);
        ByteBuf body;
        HttpResponseStatus status = HttpResponseStatus.OK;
        if (operation.isEmpty()) {
            Map<String, Long> counts = new TreeMap<>();
            calls.forEach((name, count) -> counts.put(name, count.sum()));
            double debtS = streams.values().stream()
                    .flatMap(stream -> Arrays.stream(stream.shards))
                    .mapToDouble(Limits::debtS).max().orElse(0);
            var stats = Map.of("calls", counts, "bytes", sent.sum(), "debt_s", debtS);
            body = Unpooled.wrappedBuffer(JSON.writeValueAsBytes(stats));
        } else {
            JsonNode asked = cbor ? Cbor.decode(request.content()) : json(request.content());
            body = operation.equals("GetRecords") ? records(asked, cbor) : null;
            boolean refused = body == null && operation.equals("GetRecords");
            if (body == null) {
                JsonNode answer = refused
                        ? error("ProvisionedThroughputExceededException", "Rate exceeded for shard.")
                        : control(operation, asked);
                status = answer.has("__type") ? HttpResponseStatus.BAD_REQUEST : status;
                body = cbor ? Cbor.encode(answer) : Unpooled.wrappedBuffer(JSON.writeValueAsBytes(answer));
            }
            count(refused ? "refused" : operation);
            sent.add(body.readableBytes());
        }
        var response = new DefaultFullHttpResponse(HttpVersion.HTTP_1_1, status, body);
        response.headers()
                .set(HttpHeaderNames.CONTENT_TYPE, kind)
                .set(HttpHeaderNames.CONTENT_LENGTH, body.readableBytes())
                .set(HttpHeaderNames.DATE,
                        DateTimeFormatter.RFC_1123_DATE_TIME.format(ZonedDateTime.now(ZoneOffset.UTC)))
                .set("x-amzn-RequestId", "00000000-0000-0000-0000-000000000001");
        String stream = request.headers().get(HttpConversionUtil.ExtensionHeaderNames.STREAM_ID.text());
        if (stream != null) {  // HTTP/2: the answer goes where the question came from
            response.headers().set(HttpConversionUtil.ExtensionHeaderNames.STREAM_ID.text(), stream);
        }
        context.writeAndFlush(response);
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
        if (!(cause instanceof java.io.IOException)) {  // a reader that is done leaves as it likes
            cause.printStackTrace();
        }
        context.close();
    }

    private void count(String what) {
        calls.computeIfAbsent(what, name -> new LongAdder()).increment();
    }

    private static JsonNode json(ByteBuf content) throws Exception {
        byte[] bytes = ByteBufUtil.getBytes(content);
        return bytes.length == 0 ? JSON.createObjectNode() : JSON.readTree(bytes);
    }

    private static ObjectNode error(String type, String message) {
        return JSON.createObjectNode().put("__type", type).put("message", message);
    }

    /** A page; null when the shard's limits refuse the read. The iterator is stream/shard/record. */
    private ByteBuf records(JsonNode asked, boolean cbor) {
        String[] iterator = asked.get("ShardIterator").asText().split("/");
        Stream stream = streams.get(iterator[0]);
        int first = Integer.parseInt(iterator[2]);
        int limit = asked.has("Limit") ? asked.get("Limit").asInt() : Records.PAGE;
        int end = stream.records.endOfPage(first, limit, System.currentTimeMillis());
        long bytes = (long) (end - first) * stream.records.accounted();
        if (limited && stream.shards[Integer.parseInt(iterator[1])].refuses(bytes)) {
            return null;
        }
        String next = iterator[0] + "/" + iterator[1] + "/" + end;
        return stream.records.page(first, end, next, cbor);
    }

    private JsonNode control(String operation, JsonNode asked) {
        Stream stream = streams.get(streamName(asked));
        if (stream == null) {
            return error("ResourceNotFoundException", "There is no such stream.");
        }
        ObjectNode said = JSON.createObjectNode()
                .put("StreamName", stream.name)
                .put("StreamARN", stream.arn())
                .put("StreamStatus", "ACTIVE")
                .put("RetentionPeriodHours", 24)
                .put("StreamCreationTimestamp", stream.createdMs / 1000.0);
        said.putObject("StreamModeDetails").put("StreamMode", "PROVISIONED");
        said.putArray("EnhancedMonitoring");
        ObjectNode answer = JSON.createObjectNode();
        switch (operation) {
            case "GetShardIterator" -> answer.put("ShardIterator", iterator(stream, asked));
            case "ListShards" -> answer.set("Shards", shards(stream));
            case "DescribeStream" -> {
                said.put("HasMoreShards", false).set("Shards", shards(stream));
                answer.set("StreamDescription", said);
            }
            case "DescribeStreamSummary" -> {
                said.put("OpenShardCount", stream.shards.length).put("ConsumerCount", 0);
                answer.set("StreamDescriptionSummary", said);
            }
            default -> {
                return error("InvalidArgumentException", "This server has no " + operation + ".");
            }
        }
        return answer;
    }

    private static String streamName(JsonNode asked) {
        if (asked.has("StreamName")) {
            return asked.get("StreamName").asText();
        }
        String arn = asked.path("StreamARN").asText();
        return arn.substring(arn.indexOf('/') + 1);
    }

    private static String iterator(Stream stream, JsonNode asked) {
        int shard = Integer.parseInt(asked.get("ShardId").asText().substring("shardId-".length()));
        Records records = stream.records;
        int at = switch (asked.get("ShardIteratorType").asText()) {
            case "LATEST" -> records.visible(System.currentTimeMillis());
            case "AT_SEQUENCE_NUMBER" -> records.indexOf(asked.get("StartingSequenceNumber").asText());
            case "AFTER_SEQUENCE_NUMBER" ->
                records.indexOf(asked.get("StartingSequenceNumber").asText()) + 1;
            case "AT_TIMESTAMP" -> records.indexAt(asked.get("Timestamp").asDouble());
            default -> 0;
        };
        return stream.name + "/" + shard + "/" + Math.max(0, at);
    }

    private static JsonNode shards(Stream stream) {
        var list = JSON.createArrayNode();
        BigInteger keys = BigInteger.ONE.shiftLeft(128), n = BigInteger.valueOf(stream.shards.length);
        for (int i = 0; i < stream.shards.length; i++) {
            ObjectNode shard = list.addObject().put("ShardId", String.format("shardId-%012d", i));
            shard.putObject("HashKeyRange")
                    .put("StartingHashKey", keys.multiply(BigInteger.valueOf(i)).divide(n).toString())
                    .put("EndingHashKey", keys.multiply(BigInteger.valueOf(i + 1)).divide(n)
                            .subtract(BigInteger.ONE).toString());
            shard.putObject("SequenceNumberRange")
                    .put("StartingSequenceNumber", Records.sequenceNumber(-1));
        }
        return list;
    }

    /** HTTP/1.1, or HTTP/2 by prior knowledge: the first bytes of the connection tell. */
    private ChannelHandler protocols() {
        return new ChannelInitializer<SocketChannel>() {
            @Override
            protected void initChannel(SocketChannel channel) {
                var connection = new DefaultHttp2Connection(true);
                var http2 = new HttpToHttp2ConnectionHandlerBuilder()
                        .connection(connection)
                        .initialSettings(Http2Settings.defaultSettings().maxConcurrentStreams(1000))
                        .frameListener(new InboundHttp2ToHttpAdapterBuilder(connection)
                                .maxContentLength(1 << 20).propagateSettings(false).build())
                        .build();
                var both = new ChannelInitializer<SocketChannel>() {
                    @Override
                    protected void initChannel(SocketChannel unused) {
                        channel.pipeline().addLast(http2, ReplayServer.this);
                    }
                };
                var http1 = new HttpServerCodec();
                var upgrade = new HttpServerUpgradeHandler(http1, protocol -> null);
                channel.pipeline()
                        .addLast(new CleartextHttp2ServerUpgradeHandler(http1, upgrade, both))
                        .addLast(new HttpObjectAggregator(1 << 20))
                        .addLast(ReplayServer.this);
            }
        };
    }

    @Override
    public boolean isSharable() {
        return true;
    }

    public static void main(String[] arguments) throws Exception {
        long nowMs = System.currentTimeMillis();
        boolean limited = false;
        Map<String, Stream> streams = new ConcurrentHashMap<>();
        for (String argument : arguments) {
            if (argument.equals("--limits")) {
                limited = true;
            } else {
                Stream stream = new Stream(argument, nowMs);
                streams.put(stream.name, stream);
            }
        }
        var server = new ReplayServer(streams, limited, new ConcurrentHashMap<>(), new LongAdder());
        var loops = new MultiThreadIoEventLoopGroup(2, NioIoHandler.newFactory());
        var channel = new ServerBootstrap()
                .group(loops)
                .channel(NioServerSocketChannel.class)
                .childHandler(server.protocols())
                .bind(new InetSocketAddress("127.0.0.1", 0)).sync().channel();
        System.out.println(((InetSocketAddress) channel.localAddress()).getPort());
        while (System.in.read() >= 0) {
            // wait for its end
        }
        System.exit(0);
    }
}
