import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.AwsCredentialsProvider;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.cloudwatch.CloudWatchAsyncClient;
import software.amazon.awssdk.services.dynamodb.DynamoDbAsyncClient;
import software.amazon.awssdk.services.kinesis.KinesisAsyncClient;
import software.amazon.kinesis.common.ConfigsBuilder;
import software.amazon.kinesis.common.InitialPositionInStream;
import software.amazon.kinesis.common.InitialPositionInStreamExtended;
import software.amazon.kinesis.common.KinesisClientUtil;
import software.amazon.kinesis.coordinator.Scheduler;
import software.amazon.kinesis.lifecycle.events.InitializationInput;
import software.amazon.kinesis.lifecycle.events.LeaseLostInput;
import software.amazon.kinesis.lifecycle.events.ProcessRecordsInput;
import software.amazon.kinesis.lifecycle.events.ShardEndedInput;
import software.amazon.kinesis.lifecycle.events.ShutdownRequestedInput;
import software.amazon.kinesis.metrics.NullMetricsFactory;
import software.amazon.kinesis.processor.ShardRecordProcessor;
import software.amazon.kinesis.processor.SingleStreamTracker;
import software.amazon.kinesis.retrieval.KinesisClientRecord;
import software.amazon.kinesis.retrieval.polling.PollingConfig;

/**
 * The Kinesis Client Library, polling: pages of 10,000 records at its shortest interval, a checkpoint
 * of each shard every second, leases in DynamoDB. The first records of the stream are the warm-up,
 * because a scheduler takes half a minute to get its leases.
 *
 * <pre>KclReader ENDPOINT DYNAMODB_ENDPOINT STREAM WARM_RECORDS ALL_RECORDS</pre>
 */
public final class KclReader implements ShardRecordProcessor {
    static final long CHECKPOINT_NS = 1_000_000_000L;
    static final BufferedReader IN = new BufferedReader(new InputStreamReader(System.in));
    static final CountDownLatch DONE = new CountDownLatch(1);
    static long warm, all, count, size, began;

    private long checkpointedNs = System.nanoTime();

    @Override
    public void processRecords(ProcessRecordsInput input) {
        long bytes = 0;
        for (KinesisClientRecord record : input.records()) {
            bytes += record.data().remaining();
        }
        boolean all = add(input.records().size(), bytes);
        if (all || System.nanoTime() - checkpointedNs > CHECKPOINT_NS) {
            try {
                input.checkpointer().checkpoint();
            } catch (Exception failed) {
                failed.printStackTrace();
            }
            checkpointedNs = System.nanoTime();
        }
        if (all) {
            DONE.countDown();
        }
    }

    /** Whether these were the last records. */
    private static synchronized boolean add(int records, long bytes) {
        count += records;
        size += bytes;
        if (began == 0 && count >= warm) {
            mark("\"begin\"");
            began = count;
        }
        return count >= all;
    }

    private static void mark(String fields) {
        System.out.println("MARK {\"mark\": " + fields + "}");
        System.out.flush();
        try {
            IN.readLine();
        } catch (java.io.IOException gone) {
            System.exit(1);
        }
    }

    @Override
    public void initialize(InitializationInput input) {}

    @Override
    public void leaseLost(LeaseLostInput input) {}

    @Override
    public void shardEnded(ShardEndedInput input) {}

    @Override
    public void shutdownRequested(ShutdownRequestedInput input) {}

    public static void main(String[] arguments) throws Exception {
        URI endpoint = URI.create(arguments[0]), dynamo = URI.create(arguments[1]);
        String stream = arguments[2];
        warm = Long.parseLong(arguments[3]);
        all = Long.parseLong(arguments[4]);
        AwsCredentialsProvider credentials =
                StaticCredentialsProvider.create(AwsBasicCredentials.create("peers", "peers"));
        KinesisAsyncClient kinesis = KinesisClientUtil.createKinesisAsyncClient(
                KinesisAsyncClient.builder().region(Region.US_EAST_1)
                        .credentialsProvider(credentials).endpointOverride(endpoint));
        DynamoDbAsyncClient dynamodb = DynamoDbAsyncClient.builder().region(Region.US_EAST_1)
                .credentialsProvider(credentials).endpointOverride(dynamo).build();
        CloudWatchAsyncClient cloudwatch = CloudWatchAsyncClient.builder().region(Region.US_EAST_1)
                .credentialsProvider(credentials).endpointOverride(dynamo).build();
        var start = InitialPositionInStreamExtended.newInitialPosition(
                InitialPositionInStream.TRIM_HORIZON);
        ConfigsBuilder configs = new ConfigsBuilder(new SingleStreamTracker(stream, start),
                "kcl-" + UUID.randomUUID(), kinesis, dynamodb, cloudwatch, "worker", KclReader::new);
        PollingConfig polling = new PollingConfig(stream, kinesis).maxRecords(10_000)
                .idleTimeBetweenReadsInMillis(PollingConfig.MIN_IDLE_MILLIS_BETWEEN_READS);
        Thread scheduler = new Thread(new Scheduler(configs.checkpointConfig(),
                configs.coordinatorConfig(), configs.leaseManagementConfig(),
                configs.lifecycleConfig(),
                configs.metricsConfig().metricsFactory(new NullMetricsFactory()),
                configs.processorConfig(),
                configs.retrievalConfig().retrievalSpecificConfig(polling)));
        scheduler.setDaemon(true);
        scheduler.start();
        DONE.await();
        mark("\"end\", \"records\": " + (count - began));
        System.exit(count == all ? 0 : 1);
    }
}
