"""Summaries of a corpus each night, by the command line alone: BashOperator, Airflow 3.

Exit 75 (interrupted, resumable) fails the try, and the retry goes on where it was. 4 (the window is over) is a success
here: the rest is the next night's. 65, 66, 78 and 2 are failures that another try does not mend; each is over in
seconds, since no model is loaded for it. batchrun never ends with 99, at which a BashOperator skips.
"""

import pendulum
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

with DAG(
    "nightly_summaries_bash",
    schedule="0 22 * * *",
    start_date=pendulum.datetime(2026, 11, 1, tz="Europe/Berlin"),
    catchup=False,
    max_active_runs=1,
):
    BashOperator(
        task_id="summarize",
        bash_command=(
            "/opt/batchrun/bin/batchrun submit /data/corpus.parquet --home /data/nightly --deadline 06:00 --json; "
            "code=$?; [ $code -eq 4 ] && exit 0; exit $code"
        ),
        skip_on_exit_code=None,
        do_xcom_push=True,  # the last line of standard output: the JSON summary
        retries=3,
        retry_delay=pendulum.duration(minutes=2),
        append_env=True,
    )
