#!/bin/bash
# Runs `driver ...` and `executor` of Spark on Kubernetes, and other commands unchanged.
set -euo pipefail

# Adds a missing entry of the user to /etc/passwd, because Spark fails for a user without a name.
if ! getent passwd "$(id -u)" >/dev/null; then
  for wrapper in /usr/lib/*/libnss_wrapper.so; do
    NSS_WRAPPER_PASSWD="$(mktemp)"
    NSS_WRAPPER_GROUP="$(mktemp)"
    echo "spark:x:$(id -u):$(id -g):spark:$SPARK_HOME/work-dir:/bin/false" >"$NSS_WRAPPER_PASSWD"
    echo "spark:x:$(id -g):" >"$NSS_WRAPPER_GROUP"
    export LD_PRELOAD="$wrapper" NSS_WRAPPER_PASSWD NSS_WRAPPER_GROUP
  done
fi

case "${1:-}" in
  driver)
    shift
    set -- "$SPARK_HOME/bin/spark-submit" \
      --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
      --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" \
      --deploy-mode client "$@"
    ;;
  executor)
    # Spark passes the executor's Java options as SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1 ...
    java_options=()
    for name in "${!SPARK_JAVA_OPT_@}"; do
      java_options+=("${!name}")
    done
    set -- "$JAVA_HOME/bin/java" "${java_options[@]}" \
      "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
      -cp "${SPARK_CONF_DIR:-$SPARK_HOME/conf}:${SPARK_EXTRA_CLASSPATH:-}:$SPARK_HOME/jars/*:$PWD" \
      org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
      --driver-url "$SPARK_DRIVER_URL" \
      --executor-id "$SPARK_EXECUTOR_ID" \
      --cores "$SPARK_EXECUTOR_CORES" \
      --app-id "$SPARK_APPLICATION_ID" \
      --hostname "$SPARK_EXECUTOR_POD_IP" \
      --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
      --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
esac

# tini forwards signals and collects ended child processes, which process 1 must do.
exec tini -s -- "$@"
