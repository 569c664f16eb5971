-- Answers of assistants by the id that the model's server gave them, which callers are told.

CREATE INDEX message_metadata_by_answer ON message_metadata (tenant_id, json_extract(value, '$.response_id'), number)
    WHERE kind = 'model_usage';
