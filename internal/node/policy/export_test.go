// SPDX-License-Identifier: Apache-2.0

package policy

// MeddlePause is the pause between two looks at what others do in a pod.
const MeddlePause = meddlePause
