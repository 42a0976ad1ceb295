"""Facts about the tests that the scripts which run the whole suite share."""

# Names of tests in tests/scripts that run no program of the build, or only mutants that they compile themselves.
WITHOUT_PROGRAMS = ("check", "documentation", "gpu_mutants", "headers", "includes", "lab_rules", "links", "mutants", "names", "pages",
                    "results", "sanitize", "sizes", "site")
