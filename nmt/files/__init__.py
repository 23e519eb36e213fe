"""Files and directories: read without trust, written atomically, and errors about them."""
