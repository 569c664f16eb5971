-- What the model's server sent last for a response, as an object: kept for `/api/agent` alone, and as long as the response.
ALTER TABLE responses ADD COLUMN raw_answer text;

-- The tool that the model has to call first in each turn.
ALTER TABLE agent_profiles ADD COLUMN tool_choice text;
ALTER TABLE profile_versions ADD COLUMN tool_choice text;
ALTER TABLE agent_modes ADD COLUMN tool_choice text;
