"""Summaries of a corpus each night, by the operator: Airflow 3, batchrun in an environment of its own."""

import pendulum
from airflow.sdk import DAG

from batchrun.integrations.airflow import BatchrunOperator

with DAG(
    "nightly_summaries",
    schedule="0 22 * * *",
    start_date=pendulum.datetime(2026, 11, 1, tz="Europe/Berlin"),
    catchup=False,
    max_active_runs=1,
):
    BatchrunOperator(
        task_id="summarize",
        batchrun_bin="/opt/batchrun/bin/batchrun",
        corpus="/data/corpus.parquet",
        home="/data/nightly",
        deadline="06:00",
        on_window_over="success",  # the rest is the next night's
        on_nothing_to_do="skip",
        retries=3,
        retry_delay=pendulum.duration(minutes=2),
    )
