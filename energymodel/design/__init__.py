"""Which plan is best, and what is each constraint worth?"""
