-- Sessions that the OpenID Connect provider opened: the user that it named, and a name for people.

ALTER TABLE console_sessions ADD COLUMN user_id TEXT;
ALTER TABLE console_sessions ADD COLUMN user_name TEXT;
