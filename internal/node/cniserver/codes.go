// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
)

// codeOf is a row of the table of CNI codes: errors that are cause, and the code and way out that callers get.
type codeOf struct {
	cause error
	code  model.Code
	hint  string
}

// codes is the one table of CNI error codes for what is no *model.Fault already; the first row that fits counts.
func codes() []codeOf {
	const room = "make room or make it writable, then try again"
	return []codeOf{
		{netns.ErrGone, model.CodeInvalidNetns, "CNI_NETNS must name a network namespace that exists"},
		{errPanic, model.CodeInternal, "this is a defect of weft: the agent's log has the details"},
		{context.DeadlineExceeded, model.CodeTryAgain, "try again"},
		{context.Canceled, model.CodeTryAgain, "the call was ended, try again"},
		{unix.ENOSPC, model.CodeIO, room},
		{unix.EDQUOT, model.CodeIO, room},
		{unix.EROFS, model.CodeIO, room},
		{unix.EIO, model.CodeIO, room},
		{unix.EMFILE, model.CodeTryAgain, "the agent has too many open files, try again"},
		{unix.ENOMEM, model.CodeTryAgain, "try again"},
		{unix.ENOBUFS, model.CodeTryAgain, "try again"},
		{fs.ErrPermission, model.CodeIO, "the agent runs as root and may write to its directories"},
	}
}

// coded gives an error its code; one that has a code already stays as it is.
func coded(err error) error {
	var f *model.Fault
	if errors.As(err, &f) {
		return err
	}
	for _, row := range codes() {
		if errors.Is(err, row.cause) {
			return &model.Fault{Code: row.code, Msg: err.Error(), Hint: row.hint, Err: err}
		}
	}
	return &model.Fault{Code: model.CodeInternal, Msg: err.Error(), Err: err}
}

// failure is the exit code and stdout of a call that failed.
func failure(err error, cniVersion string) (exit int, out []byte) {
	return 1, cni.FormatError(coded(err), cniVersion)
}

// codedOrNil is coded for an error that may be none.
func codedOrNil(err error) error {
	if err == nil {
		return nil
	}
	return coded(err)
}
