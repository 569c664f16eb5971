-- What the model's server sent last for a response, as an object: kept for `/api/agent` alone, and as long as the response.
ALTER TABLE responses ADD COLUMN raw_answer TEXT;

-- The tool that the model has to call first in each turn.
ALTER TABLE agent_profiles ADD COLUMN tool_choice TEXT;
ALTER TABLE profile_versions ADD COLUMN tool_choice TEXT;
ALTER TABLE agent_modes ADD COLUMN tool_choice TEXT;
