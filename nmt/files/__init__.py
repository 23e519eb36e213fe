"""Files and directories: read without trust, written whole, and what is said of them when that fails."""
