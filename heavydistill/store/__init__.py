"""Files on disk: traces, training sets and records, atomically written folders, the journal."""
