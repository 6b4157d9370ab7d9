"""Bytes <-> values, without loss. Nothing in here opens a file, reads a clock or keeps anything between two calls.

    json_faults   where a text is not JSON, and what is wrong, in words for people
    json_values   one JSON value <-> bytes, exactly: big integers, decimals as written, nothing that JSON cannot hold
    json_text     a JSON document: read it, and change members of it without touching any other byte
    json_lines    a JSON Lines document: read it line by line, keep the bad lines, change one line

They build on each other in this order.
"""
