-- The console finds the turn of a call by the id that the model gave it.
CREATE INDEX tool_runs_by_call ON tool_runs (tenant_id, call_id, started_at);
