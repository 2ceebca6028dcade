"""The interface for programs: routes below `/api/v1/`, as one table, with its OpenAPI document."""
