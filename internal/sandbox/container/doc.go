// SPDX-License-Identifier: Apache-2.0

// Package container runs the processes of a pod's containers, and the pause process that holds their namespaces. They
// survive the runtime that started them.
//
//	runtime ── starts ──▶ monitor (one per container; waits, writes log and exit code)
//	                        └─▶ init stage, in the pod's net, uts and ipc namespaces and in new mnt and pid ones
//	                              └─ becomes the container's command
//
// All of them are this program, executed with other arguments (Reexec). A container is a directory:
//
//	spec.json    its specification
//	lock         locked by the monitor as long as that runs
//	state.json   the command's process, once it runs
//	exit.json    its exit code
//
// The container's root filesystem is the host's; images are not pulled.
package container
