-- Webhooks: endpoints of tenants, and the queue of deliveries. Times are milliseconds since 1970. Events of background responses
-- and of approvals are enqueued by triggers: in the transaction that ends the response, whichever statement ends it.

CREATE TABLE webhook_endpoints (
    tenant_id INTEGER NOT NULL,
    id TEXT NOT NULL,
    url TEXT NOT NULL,
    -- Names with a comma before and behind each.
    event_types TEXT NOT NULL,
    -- The signing secret, sealed.
    secret TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE webhook_deliveries (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id INTEGER NOT NULL,
    endpoint_id TEXT NOT NULL,
    event_id TEXT NOT NULL,
    event_type TEXT NOT NULL,
    data TEXT NOT NULL,
    event_at INTEGER NOT NULL,
    queued_at INTEGER NOT NULL,
    status TEXT NOT NULL DEFAULT 'pending',
    attempts INTEGER NOT NULL DEFAULT 0,
    next_at INTEGER NOT NULL,
    last_status INTEGER,
    last_error TEXT,
    delivered_at INTEGER,
    -- The process that sends it.
    process BLOB
) STRICT;
CREATE INDEX webhook_deliveries_by_endpoint ON webhook_deliveries (tenant_id, endpoint_id, number);
CREATE INDEX webhook_deliveries_pending ON webhook_deliveries (tenant_id, endpoint_id, number) WHERE status = 'pending';

CREATE TRIGGER webhook_response_updated AFTER UPDATE OF status ON responses
WHEN NEW.background = 1 AND OLD.status IN ('queued', 'in_progress')
    AND NEW.status IN ('completed', 'failed', 'cancelled', 'incomplete')
BEGIN
    INSERT INTO webhook_deliveries (tenant_id, endpoint_id, event_id, event_type, data, event_at, queued_at, next_at)
    SELECT tenant_id, id, 'evt_' || substr(NEW.id, 6), 'response.' || NEW.status, '{"id":"' || NEW.id || '"}',
        CAST(unixepoch('subsec') * 1000 AS INTEGER), CAST(unixepoch('subsec') * 1000 AS INTEGER), 0
    FROM webhook_endpoints
    WHERE tenant_id = NEW.tenant_id AND event_types LIKE '%,response.' || NEW.status || ',%';
END;

CREATE TRIGGER webhook_response_added AFTER INSERT ON responses
WHEN NEW.background = 1 AND NEW.status IN ('completed', 'failed', 'cancelled', 'incomplete')
BEGIN
    INSERT INTO webhook_deliveries (tenant_id, endpoint_id, event_id, event_type, data, event_at, queued_at, next_at)
    SELECT tenant_id, id, 'evt_' || substr(NEW.id, 6), 'response.' || NEW.status, '{"id":"' || NEW.id || '"}',
        CAST(unixepoch('subsec') * 1000 AS INTEGER), CAST(unixepoch('subsec') * 1000 AS INTEGER), 0
    FROM webhook_endpoints
    WHERE tenant_id = NEW.tenant_id AND event_types LIKE '%,response.' || NEW.status || ',%';
END;

CREATE TRIGGER webhook_approval_added AFTER INSERT ON approvals
BEGIN
    INSERT INTO webhook_deliveries (tenant_id, endpoint_id, event_id, event_type, data, event_at, queued_at, next_at)
    SELECT tenant_id, id, 'evt_' || substr(NEW.id, 6), 'amalgam.approval.requested',
        '{"id":"' || NEW.id || '","response_id":"' || NEW.response_id || '"}', NEW.asked_at, NEW.asked_at, 0
    FROM webhook_endpoints
    WHERE tenant_id = NEW.tenant_id AND event_types LIKE '%,amalgam.approval.requested,%';
END;
