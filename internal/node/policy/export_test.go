// SPDX-License-Identifier: Apache-2.0

package policy

// RepairPause is the pause between two repairs in a pod.
const RepairPause = repairPause
