"""HTTP utilities independent of any page: headers, compression, the path prefix and the error log."""
