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
