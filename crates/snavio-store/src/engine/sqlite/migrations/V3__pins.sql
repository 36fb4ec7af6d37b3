-- Facts that a node writes once and every later start must agree with (ENG-7).
CREATE TABLE pin (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
