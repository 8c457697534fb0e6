// Package archive takes old history out of the tables and puts it into compressed files.
//
// The tables are in partitions by time (package partitions). An archive has the oldest partition of each, and closed holds that were turned out of their
// table. Of purchases it has those partitions whose campaigns have all ended: none, or several. It is made in steps, each of which is written down in the database before the next one begins, so that an archive which was interrupted goes on where it was:
//
//  1. The partitions are sealed: they take no rows any more, and none of theirs changes.
//  2. Each is copied to a file, which is read again; the roots of draws are made of the purchases in it, and compared.
//  3. The sums of the entries are added up, by account: with them the history in the tables begins.
//  4. In one transaction the partitions leave their tables, and the sums become part of the books.
//  5. The partitions are dropped.
//
// Rows are never deleted one by one, and nothing leaves the tables before the files are on the disk. Commands go on meanwhile: locks that they
// would wait for are held for milliseconds, or given up.
//
// Transfers whose reference is taken for ever, and those that a transfer between ledgers rests on, are kept: they stay in a small partition
// in place of the large one.
package archive
