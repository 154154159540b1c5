// SPDX-License-Identifier: Apache-2.0

// Package container runs the processes of a pod's containers, and the pause process that holds their namespaces, so
// that they outlive the runtime which started them.
//
//	runtime ── starts ──▶ monitor (one per container; waits, writes log and exit code)
//	                        └─▶ init stage, in the pod's net, uts and ipc namespaces and in new mnt and pid ones
//	                              └─ becomes the container's command
//
// All of them are this program again, with other arguments (Hidden). A container is a directory:
//
//	spec.json    what was asked for
//	lock         held by the monitor as long as it lives
//	state.json   the command's process, once it runs
//	exit.json    how it ended
//
// The host's own files are the container's root; images are not pulled.
package container
