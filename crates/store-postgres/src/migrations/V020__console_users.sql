-- Sessions that the OpenID Connect provider opened: the user that it named, and a name for people.

ALTER TABLE console_sessions ADD COLUMN user_id text, ADD COLUMN user_name text;
