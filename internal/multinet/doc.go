// SPDX-License-Identifier: Apache-2.0

// Package multinet resolves the networks of a pod: those in the runtime's configuration, and those that the pod's
// annotations request by the names of NetworkAttachmentDefinitions. It reads Multus' keys and annotations with Multus'
// meaning. It attaches nothing.
//
// # Vocabulary
//
//   - Settings: the runtime's configuration, with Multus' keys.
//   - Selection: one element of a pod's annotation: a network by its name, and what the pod requests of it.
//   - Attachment: one network of one pod with all that a CNI call for it needs.
//
// # The picture
//
//	call ──→ Settings ──→ delegates or clusterNetwork, defaultNetworks ──┐
//	pod's annotations ──→ Selections ──→ NetworkAttachmentDefinitions ───┴→ Attachments ──→ attach ──→ network-status
package multinet
