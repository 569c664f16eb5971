-- Responses by the id that the model's server gave their last answer.

CREATE INDEX responses_by_provider_id ON responses (tenant_id, (provenance::jsonb->>'provider_id'), number)
    WHERE provenance::jsonb->>'provider_id' IS NOT NULL;
