ft_test(unit/test_wire_operate.c LINK ft_wire)
ft_test(unit/test_screen.c SOURCES ${PROJECT_SOURCE_DIR}/foretokenctl/screen.c
        ${PROJECT_SOURCE_DIR}/foretokenctl/print.c LINK ft_wire)
