// SPDX-License-Identifier: Apache-2.0

package model

// CheckReport is the result of a CHECK of all attachments of a node.
type CheckReport struct {
	// Attachments counts the finished ones, Unchecked those that were skipped: another call used them, or the time ran
	// out.
	Attachments int            `json:"attachments"`
	Unchecked   int            `json:"unchecked,omitempty"`
	Problems    []CheckProblem `json:"problems,omitempty"`
}

// CheckProblem is an attachment whose kernel state differs from its plan.
type CheckProblem struct {
	Attachment string `json:"attachment"`
	Pod        string `json:"pod,omitempty"`
	// Gone: the pod's network namespace does not exist any more.
	Gone bool `json:"gone,omitempty"`
	// Message is the error that CHECK returned.
	Message string `json:"says,omitempty"`
}

// VMReport is the result of a comparison of all VMs of a node with their pods.
type VMReport struct {
	VMs int `json:"machines"`
	// Unreadable is why records could not be read; empty if all were read.
	Unreadable string      `json:"unreadable,omitempty"`
	Problems   []VMProblem `json:"problems,omitempty"`
}

// VMProblem is a VM whose pod differs from its plan.
type VMProblem struct {
	VM string `json:"machine"`
	// Gone: the pod does not exist any more. Unfinished: a change of the VM was interrupted.
	Gone       bool `json:"gone,omitempty"`
	Unfinished bool `json:"unfinished,omitempty"`
	// Message describes the problem.
	Message string `json:"says,omitempty"`
}
