"""Parts of HTTP that know no page: headers, the path prefix, the log of errors."""
