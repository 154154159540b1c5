// SPDX-License-Identifier: Apache-2.0

package early

// memfdCreate is the number of memfd_create(2), which package syscall does not have.
const memfdCreate = 279
