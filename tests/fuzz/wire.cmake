ft_test(fuzz/fuzz_wire.c SOURCES ${PROJECT_SOURCE_DIR}/tests/unit/test_wire_samples.c
        LINK ft_wire LABELS fuzz)
