-- Which model answered a response, and what of the request it did not see: the field `amalgam` of the object, as JSON.

ALTER TABLE responses ADD COLUMN provenance text;
