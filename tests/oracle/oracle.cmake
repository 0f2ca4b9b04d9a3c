# Compare with the tokenizers library; skipped until install.sh was run for this build folder.
foreach(suite tokenizer_oracle regex_oracle tokenizer_llama3)
  ft_test(oracle/test_${suite}.c LINK ft_text LABELS slow TIMEOUT 900)
endforeach()
