// SPDX-License-Identifier: Apache-2.0

// Package multinet finds out to which networks a pod is to be attached: those that the runtime's configuration names,
// and those that the pod asks for in its annotations by the names of NetworkAttachmentDefinitions. It speaks Multus'
// words, so that what was written for Multus means the same here. It attaches nothing.
//
// # Vocabulary
//
//   - Settings: the runtime's configuration, with Multus' keys.
//   - Selection: one element of a pod's annotation: a network by its name, and what the pod wants of it.
//   - Attachment: one network of one pod with everything that a CNI call for it needs.
//
// # The picture
//
//	call ──→ Settings ──→ delegates or clusterNetwork, defaultNetworks ──┐
//	pod's annotations ──→ Selections ──→ NetworkAttachmentDefinitions ───┴→ Attachments ──→ attach ──→ network-status
package multinet
