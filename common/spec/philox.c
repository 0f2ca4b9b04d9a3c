#include "common/spec/philox.h"

#define ROUNDS 10
#define MULTIPLIER_0 0xD2511F53u
#define MULTIPLIER_1 0xCD9E8D57u
#define WEYL_0 0x9E3779B9u /* golden ratio */
#define WEYL_1 0xBB67AE85u /* sqrt(3) - 1 */

void ft_philox_block(uint64_t seed, uint64_t position, uint32_t purpose, uint32_t lane,
                     uint32_t out[4]) {
    uint32_t key_0 = (uint32_t)seed, key_1 = (uint32_t)(seed >> 32);
    uint32_t c0 = (uint32_t)position, c1 = (uint32_t)(position >> 32);
    uint32_t c2 = purpose, c3 = lane;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t product_0 = (uint64_t)MULTIPLIER_0 * c0;
        uint64_t product_1 = (uint64_t)MULTIPLIER_1 * c2;
        c0 = (uint32_t)(product_1 >> 32) ^ c1 ^ key_0;
        c1 = (uint32_t)product_1;
        c2 = (uint32_t)(product_0 >> 32) ^ c3 ^ key_1;
        c3 = (uint32_t)product_0;
        key_0 += WEYL_0;
        key_1 += WEYL_1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

double ft_philox_uniform(uint64_t seed, uint64_t position, enum ft_philox_purpose purpose,
                         uint32_t lane) {
    uint32_t block[4];
    ft_philox_block(seed, position, (uint32_t)purpose, lane, block);
    uint64_t bits = (uint64_t)block[1] << 32 | block[0];
    return (double)(bits >> 11) * 0x1p-53;
}
