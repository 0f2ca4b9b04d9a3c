# The rings of rounds and what foretokenctl makes of them.
ft_test(unit/test_trace.c LINK co_core)
ft_test(unit/test_ctl_trace.c
  SOURCES ${PROJECT_SOURCE_DIR}/foretokenctl/trace_json.c
          ${PROJECT_SOURCE_DIR}/tests/support/trace_events.c
  LINK ft_spec ft_wire ft_base ft_jansson m)
