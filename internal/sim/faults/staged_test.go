//go:build unix

package faults_test

// staged are the alerts for which there is a fault in this package.
func staged() []string {
	return []string{
		"FairleadDown", "FairleadQueueFull", "FairleadCommitSlow", "FairleadTransactionRetries", "FairleadFallbacks", "FairleadTargetShared", "FairleadRowsBlocked", "FairleadSnapshotOld", "FairleadOutcomesUnknown", "FairleadHistoryLost", "FairleadPanics", "FairleadErrors",
		"FairleadDrawStuck", "FairleadOversold", "FairleadDrawDuplicate", "FairleadDrawFailing", "FairleadDrawRetries",
		"FairleadLeaderAbsent", "FairleadRoundLate", "FairleadTwoLeaders", "FairleadSubscribersDropped",
		"FairleadLockHeldTooLong", "FairleadLockOldestHold", "FairleadLockWaitTooLong", "FairleadLocksLost", "FairleadDeadlocks", "FairleadLocksContended",
		"FairleadClaimsStale", "FairleadPublicationsLate", "FairleadSubscriptionBehind", "FairleadSubscriptionStopped", "FairleadLogRefused", "FairleadBooksUnbalanced", "FairleadBooksLate", "FairleadLogLate", "FairleadLogWitnessMissing", "FairleadSagasRetry", "FairleadInDoubt", "FairleadLedgerUnreachable", "FairleadMultidrawInterrupted",
	}
}
