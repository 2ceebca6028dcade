"""The API for programs: the routes below `/api/v1/` and their OpenAPI document."""
