-- Responses by the id that the model's server gave their last answer.

CREATE INDEX responses_by_provider_id ON responses (tenant_id, json_extract(provenance, '$.provider_id'), number)
    WHERE json_extract(provenance, '$.provider_id') IS NOT NULL;
