# Figures and page of foretokenctl bench.
set(bench_sources)
foreach(name bench_page bench_plot bench_report bench_rounds print)
  list(APPEND bench_sources ${PROJECT_SOURCE_DIR}/foretokenctl/${name}.c)
endforeach()
ft_test(unit/test_ctl_bench.c SOURCES ${bench_sources} LINK ft_spec ft_wire ft_rpc ft_base m)
# A browser says the same of a page in every build.
if(NOT FORETOKEN_SANITIZE)
  ft_test(unit/test_ctl_bench_page.c SOURCES ${bench_sources}
          LINK ft_test_support ft_spec ft_wire ft_rpc ft_base m)
endif()
