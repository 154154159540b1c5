// SPDX-License-Identifier: Apache-2.0

package model

// CheckReport is the outcome of a CHECK of all attachments of a node.
type CheckReport struct {
	// Attachments counts the finished ones, Unchecked those of them that another call was about, or that time was too
	// short for.
	Attachments int            `json:"attachments"`
	Unchecked   int            `json:"unchecked,omitempty"`
	Problems    []CheckProblem `json:"problems,omitempty"`
}

// CheckProblem is an attachment that is not as its ADD left it.
type CheckProblem struct {
	Attachment string `json:"attachment"`
	Pod        string `json:"pod,omitempty"`
	// Gone: the pod's namespace is not there any more.
	Gone bool `json:"gone,omitempty"`
	// Says is the error of CHECK.
	Says string `json:"says,omitempty"`
}

// MachineReport is the outcome of a comparison of all virtual machines of a node with their pods.
type MachineReport struct {
	Machines int `json:"machines"`
	// Unreadable is what is wrong with records that could not be read; empty where all could be.
	Unreadable string           `json:"unreadable,omitempty"`
	Problems   []MachineProblem `json:"problems,omitempty"`
}

// MachineProblem is a virtual machine that is not in its pod as it was made.
type MachineProblem struct {
	Machine string `json:"machine"`
	// Gone: the pod is not there any more. Unfinished: a call about the machine was not brought to its end.
	Gone       bool `json:"gone,omitempty"`
	Unfinished bool `json:"unfinished,omitempty"`
	// Says is what is wrong.
	Says string `json:"says,omitempty"`
}
