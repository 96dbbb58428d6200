"""Files in, batches of documents out, in input order. A bad row is a row with a verdict, never the end of the job."""
