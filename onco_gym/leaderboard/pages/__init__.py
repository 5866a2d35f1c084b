"""The pages of the leaderboards: made on the server, readable without scripts, and the same as a folder of files."""
