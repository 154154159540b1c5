// SPDX-License-Identifier: Apache-2.0

// Package flannel is what flannel says and reads, in its own words: files, annotations, keys. Whoever speaks with a flanneld,
// or stands in for one, says it here.
package flannel
