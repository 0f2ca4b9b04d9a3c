/* A step as one kernel, on a card. */
#include "gpu/twin.h"
#include "gpu/whole_cases.h"

void whole_cases_seed(uint64_t seed) {
    (void)seed; /* a card runs threads as it likes */
}

int main(void) {
    Suite *suite = suite_create("whole");
    whole_cases_add(suite);
    return twin_main(suite);
}
