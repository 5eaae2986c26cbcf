"""Sources of rows: files of every format, arrays, tables and generators."""
